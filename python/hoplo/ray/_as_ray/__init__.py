"""A folder for `sys.path`, in which `ray` is this facade."""
