"""What is near: encoders turn inputs into vectors, neighbour search turns vectors into a graph."""
