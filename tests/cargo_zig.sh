#!/bin/sh
# A cargo for setuptools-rust that builds by zig, whose linker knows other machines and old versions of glibc: `make wheel-elsewhere`.
export CARGO=cargo
case $1 in
build) shift && exec cargo-zigbuild zigbuild "$@" ;;
rustc) exec cargo-zigbuild "$@" ;;
*) exec cargo "$@" ;;
esac
