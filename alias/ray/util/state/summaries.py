from hoplo.util.state.summaries import *
