package balancer

// Linger is how long a connection that is given up stays open.
const Linger = linger

// Name is the policy's name in gRPC's registry.
const Name = policyName
