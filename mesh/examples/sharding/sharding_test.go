package sharding_test

import (
	"fmt"
	"log"
	"net"
	"net/netip"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/examples/sharding"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// assignments is the type to watch, with the ports of the endpoints as its values.
var assignments = &xdsclient.ResourceType{
	TypeURL: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	Name:    "ClusterLoadAssignment",
	Decode: func(resource *anypb.Any, _ xdsclient.DecodeOptions) (value any, err error) {
		a := new(endpointpb.ClusterLoadAssignment)
		if err := resource.UnmarshalTo(a); err != nil {
			return nil, err
		}
		var ports []uint32
		for _, l := range a.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				ports = append(ports, e.GetEndpoint().GetAddress().GetSocketAddress().GetPortValue())
			}
		}
		return ports, nil
	},
}

// client gets the updates of its shard. It is buffered, as a watcher must not block: it would delay others.
type client chan string

func (c client) ResourceChanged(value any, err error, done func()) {
	defer done()
	if err != nil {
		value = err
	}
	c <- fmt.Sprint(value)
}

func (c client) AmbientError(err error, done func()) {
	defer done()
	c <- err.Error()
}

// Two clients use two of three shards.
func Example() {
	store := controlplane.NewStore()
	catalog, err := sharding.NewCatalog(store, 3)
	if err != nil {
		log.Fatal(err)
	}
	catalog.Set("users", endpoints(6)...)
	xds, stop := serve(store)
	defer stop()

	shards := map[string]client{"0": make(client, 8), "2": make(client, 8)}
	for shard, c := range shards {
		constraints, err := dynparam.Exact(map[string]string{"shard": shard})
		if err != nil {
			log.Fatal(err)
		}
		defer xds.WatchLocator(assignments, "users", constraints, c)()
	}
	fmt.Println("shard 0:", <-shards["0"])
	fmt.Println("shard 2:", <-shards["2"])

	// A seventh endpoint is in shard 0, so only its client gets an update.
	catalog.Set("users", endpoints(7)...)
	fmt.Println("shard 0:", <-shards["0"])

	catalog.Set("users", endpoints(9)...)
	fmt.Println("shard 2:", <-shards["2"])
	// Output:
	// shard 0: [8000 8003]
	// shard 2: [8002 8005]
	// shard 0: [8000 8003 8006]
	// shard 2: [8002 8005 8008]
}

func endpoints(n int) (all []netip.AddrPort) {
	for i := range n {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), uint16(8000+i)))
	}
	return all
}

// serve serves a store on loopback, and returns a client of it.
func serve(store *controlplane.Store) (xds *xdsclient.XDSClient, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server, grpcServer := controlplane.NewServer(store, controlplane.Options{}), grpc.NewServer()
	server.Register(grpcServer)
	go grpcServer.Serve(listener)
	config, err := bootstrap.Parse("example", fmt.Appendf(nil, `{
		"xds_servers": [{
			"server_uri": %q, "channel_creds": [{"type": "insecure"}],
			"server_features": ["delta", "dynamic_parameter_constraints"]
		}],
		"node": {"id": "example"}
	}`, listener.Addr()))
	if err != nil {
		log.Fatal(err)
	}
	xds, err = xdsclient.New(config, xdsclient.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return xds, func() {
		xds.Close()
		server.Close()
		grpcServer.Stop()
	}
}
