"""The page of `promptgroup dashboard`: what is seen of the cluster, what is shown of it, and who serves it.

Everything that a cluster tells is somebody else's text: it is cut here, and the page puts it into text nodes only.

It may not import `commands`.
"""
