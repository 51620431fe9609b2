package balancer

// Linger is how long a connection that is given up stays open.
const Linger = linger
