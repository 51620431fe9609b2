package xdsclient_test

import (
	"fmt"
	"log"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// clusters is the type of the resources to watch. Decode returns the value that watchers
// get; its error NACKs the resource.
var clusters = &xdsclient.ResourceType{
	TypeURL:         "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	Name:            "Cluster",
	FullStateInSotW: true,
	Decode: func(resource *anypb.Any, _ xdsclient.DecodeOptions) (value any, err error) {
		cluster := new(clusterpb.Cluster)
		err = resource.UnmarshalTo(cluster)
		return cluster, err
	},
}

// printer is a watcher that prints what it is told.
type printer struct{ heard chan struct{} }

func (p printer) ResourceChanged(value any, err error, done func()) {
	defer done()
	if err != nil {
		fmt.Println("no cluster:", err)
	} else {
		fmt.Println("cluster:", value.(*clusterpb.Cluster).GetAltStatName())
	}
	p.heard <- struct{}{}
}

func (p printer) AmbientError(err error, done func()) {
	defer done()
	fmt.Println("the cluster stays in use, but:", err)
	p.heard <- struct{}{}
}

// A program that has no use for gRPC channels watches resources with a client of its
// own, here from a server in the same process.
func Example() {
	server, err := testutils.NewFakeServer()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	publish := func(description string) {
		if err := server.TryUpdate(func(tx *testutils.Tx) {
			tx.Set(&clusterpb.Cluster{Name: "blue", AltStatName: description})
		}); err != nil {
			log.Fatal(err)
		}
	}
	publish("first version")

	config, err := bootstrap.Parse("example", fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}],
		"node": {"id": "example"}
	}`, server.Addr()))
	if err != nil {
		log.Fatal(err)
	}
	client, err := xdsclient.New(config, xdsclient.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	p := printer{heard: make(chan struct{}, 1)}
	defer client.Watch(clusters, "blue", p)()
	<-p.heard
	publish("second version")
	<-p.heard

	// Output:
	// cluster: first version
	// cluster: second version
}
