from hoplo.util.state.rows import *
