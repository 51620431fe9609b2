// Package balancer is gRPC's load-balancing policy for channels that xDS configures. It sends
// each RPC to the cluster that its Decision names, and within the cluster to an endpoint.
//
// It does not choose clusters, which package configselector does before the pick, and watches
// no resources. The service config only names the policy: its configuration is the State that
// the resolver attaches to its updates. The results are the picker and the connectivity of the
// channel.
//
// The tree consists of root (this package), cluster, priority, locality, and a policy that
// picks among endpoints: one of gRPC's own, by name (package leaf), or ring hash, Maglev, random or
// slow start, which are ours. Package aggregate is between the root and the clusters under an
// aggregate one, cluster.Graceful replaces policies, package outlier ejects
// endpoints of a cluster, and package conns has the connections and what is known of endpoints by address. A
// cluster is only a small lazyCluster until an RPC, or ClientConn.Connect, needs it; only then does it
// get policies and connections.
//
// # Concurrency
//
// gRPC calls the balancer from one goroutine, picks from any, and lets leaf policies report
// from any. Therefore everything in the tree runs on one loop (package tree), one function at a
// time and without locks. A pick reads only immutable values and atomic pointers.
//
// # Versions
//
// A Decision and the picker may come from different snapshots, as neither waits for the other.
// An RPC whose cluster the picker does not have waits for the next picker if its Decision is
// newer than the picker, and is routed again otherwise. So no RPC fails because routes or
// clusters change.
package balancer
