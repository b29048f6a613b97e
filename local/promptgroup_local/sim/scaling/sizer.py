"""placeholder"""
class Sizer:
    said=""
    name="promptgroup"
    def __init__(self, scene): pass
    def recommend(self, now, meter, fleet): return fleet.wanted
