from hoplo.util.state.errors import *
