// Package identity tells who a client is in Kubernetes, by the token of its service account, which the API server reviews, or by
// a certificate with a SPIFFE ID.
//
// What it finds becomes the client's node: its namespace, service account, pod, node and zone are tags of the client, by which
// policies, dynamic parameters and access decide. A client that says otherwise of itself is refused. All else in a node stays a
// claim.
package identity
