// Package balancer is gRPC's load-balancing policy for channels that are
// configured by xDS. It sends each RPC to the cluster that its Decision names,
// and within the cluster to an endpoint.
//
// It does not choose clusters (package configselector does, before the RPC
// reaches the picker), watches no resource, and takes no configuration from the
// service config, which only names the policy: the resolver attaches a State to
// what it reports, and everything comes from there. What the balancer gives
// back is the picker and the connectivity of the channel.
//
// The tree is root (this package), cluster, priority, locality, and a policy
// that picks among endpoints (package endpointpolicy): one folder each. Between
// the root and clusters that are under an aggregate one there is package
// aggregate. The policy at the end is one of gRPC's own, by name (package leaf),
// or ring hash or random, which are ours. Package switchover puts one policy in
// the place of another, package outlier watches over a cluster's endpoints. A
// cluster is but a small cell until an RPC, or ClientConn.Connect, asks for it;
// only then does it get policies and connections.
//
// # Concurrency
//
// gRPC calls the balancer from one goroutine, picks from any, and lets leaf
// policies report from any. All of the tree is therefore worked on by one loop
// (package tree), one function at a time and without locks. A pick reads
// immutable values and atomic pointers only.
//
// # Versions
//
// A Decision and the picker may come from different snapshots, as neither waits
// for the other. An RPC whose cluster the picker does not have waits for the
// next picker if its Decision is the newer one, and is routed again if it is
// not. So no RPC fails because routes or clusters changed around it.
package balancer
