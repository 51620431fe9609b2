// Package store keeps the documents of a control plane in etcd.
package store

// The client that the package is written against.
import _ "go.etcd.io/etcd/client/v3"
