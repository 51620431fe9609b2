package balancer

// Linger is how long a connection stays open after its last use.
const Linger = linger

// Name is the policy's name in gRPC's registry.
const Name = policyName
