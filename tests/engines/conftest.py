from hypothesis import settings

settings.register_profile("engines", deadline=None)  # the first example pays for torch's lazy start
settings.load_profile("engines")
