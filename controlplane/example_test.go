package controlplane_test

import (
	"fmt"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/controlplane"
)

// A control plane is a store, a server over it, and a gRPC server around that.
func Example() {
	store := controlplane.NewStore()
	server := controlplane.NewServer(store)
	defer server.Close() // before the gRPC server's GracefulStop

	grpcServer := grpc.NewServer()
	server.Register(grpcServer)
	// go grpcServer.Serve(listener)

	version, err := store.Update(func(tx *controlplane.Tx) {
		tx.Set(&clusterpb.Cluster{Name: "blue"}, &clusterpb.Cluster{Name: "green"})
	})
	fmt.Println(version, err)

	// The same again changes nothing, and nothing is pushed.
	version, err = store.Update(func(tx *controlplane.Tx) {
		tx.Set(&clusterpb.Cluster{Name: "green"})
	})
	fmt.Println(version, err)

	// One fault, and none of the update is applied.
	_, err = store.Update(func(tx *controlplane.Tx) {
		tx.Set(&clusterpb.Cluster{Name: "red"}, &clusterpb.Cluster{})
	})
	fmt.Println(err)
	// Output:
	// 1 <nil>
	// 1 <nil>
	// store update: set: the name of the *clusterv3.Cluster is empty
}

// What cannot be had is answered by the reason, until it can.
func ExampleTx_SetError() {
	const clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	store := controlplane.NewStore()
	_, err := store.Update(func(tx *controlplane.Tx) {
		tx.SetError(clusters, "blue", status.New(codes.PermissionDenied, "blue belongs to another team"))
	})
	fmt.Println(err, store.Error(clusters, "blue").Message())

	_, err = store.Update(func(tx *controlplane.Tx) { tx.Set(&clusterpb.Cluster{Name: "blue"}) })
	fmt.Println(err, store.Error(clusters, "blue") == nil, store.Get(clusters, "blue").Name())
	// Output:
	// <nil> blue belongs to another team
	// <nil> true blue
}
