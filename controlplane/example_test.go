package controlplane_test

import (
	"fmt"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"

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
