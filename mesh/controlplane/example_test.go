package controlplane_test

import (
	"fmt"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A control plane is a store, a server over it, and a gRPC server around that.
func Example() {
	store := controlplane.NewStore()
	server := controlplane.NewServer(store, controlplane.Options{})
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

	// One error, and none of the update is applied.
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

// Two variants of a cluster, and the constraints by which each client chooses one.
func ExampleTx_SetVariant() {
	const clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	constraints := func(node *corepb.Node) (dynparam.ByType, error) {
		c, err := dynparam.Exact(map[string]string{"region": node.GetLocality().GetRegion()})
		if err != nil {
			return dynparam.ByType{}, err
		}
		return dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.cluster.v3.Cluster": c})
	}
	store := controlplane.NewStore()
	_, err := store.Update(func(tx *controlplane.Tx) {
		tx.SetVariant(map[string]string{"region": "eu"}, &clusterpb.Cluster{Name: "users", AltStatName: "users of Europe"})
		tx.SetVariant(map[string]string{"region": "us"}, &clusterpb.Cluster{Name: "users", AltStatName: "users of America"})
		tx.SetDPDS("constraints", constraints)
	})
	if err != nil {
		fmt.Println(err)
	}

	// What a client in Europe gets.
	mine, err := constraints(&corepb.Node{Locality: &corepb.Locality{Region: "eu"}})
	if err != nil {
		fmt.Println(err)
	}
	resource, _ := store.Choose(clusters, "users", mine.For(clusters))
	fmt.Println(mine.For(clusters), resource.Parameters())
	// Output:
	// {region=eu} {region=eu}
}
