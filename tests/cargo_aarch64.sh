#!/bin/sh
# A cargo for setuptools-rust that builds for aarch64 by zig, whose linker knows old versions of glibc: `make wheels-aarch64`.
export CARGO=cargo
case $1 in
build) shift && exec cargo-zigbuild zigbuild "$@" ;;
rustc) exec cargo-zigbuild "$@" ;;
*) exec cargo "$@" ;;
esac
