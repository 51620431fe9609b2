package xdsclient_test

import (
	"fmt"
	"log"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// motd is a message of the day: a type of resource that this program and its
// control plane agreed on. On the wire it is a TypedExtensionConfig around a
// StringValue; in the program it is a string.
var motd = &xdsclient.ResourceType{
	TypeURL: "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
	Name:    "MessageOfTheDay",
	Decode: func(resource *anypb.Any, _ xdsclient.DecodeOptions) (name string, value any, err error) {
		var config corev3.TypedExtensionConfig
		if err := resource.UnmarshalTo(&config); err != nil {
			return "", nil, err
		}
		var text wrapperspb.StringValue
		if err := config.GetTypedConfig().UnmarshalTo(&text); err != nil {
			return config.GetName(), nil, fmt.Errorf("typed_config: %w", err)
		}
		return config.GetName(), text.GetValue(), nil
	},
}

// printer is a watcher that prints what it hears.
type printer struct{ heard chan struct{} }

func (p printer) ResourceChanged(value any, err error, done func()) {
	defer done()
	if err != nil {
		fmt.Println("no message:", err)
	} else {
		fmt.Println("message:", value)
	}
	p.heard <- struct{}{}
}

func (p printer) AmbientError(err error, done func()) {
	defer done()
	fmt.Println("the message stays, but:", err)
	p.heard <- struct{}{}
}

// A program that has no use for gRPC channels can watch resources of a type of its
// own, here from a control plane in the same process.
func Example() {
	server, err := testutils.NewFakeServer()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	publish := func(text string) {
		content, err := anypb.New(wrapperspb.String(text))
		if err != nil {
			log.Fatal(err)
		}
		if _, err := server.Store().Update(func(tx *controlplane.Tx) {
			tx.Set(&corev3.TypedExtensionConfig{Name: "greeting", TypedConfig: content})
		}); err != nil {
			log.Fatal(err)
		}
	}
	publish("good morning")

	cfg, err := bootstrap.Parse("example", server.Bootstrap("node-1"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := xdsclient.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	p := printer{heard: make(chan struct{}, 1)}
	stop := client.Watch(motd, "greeting", p)
	defer stop()
	<-p.heard
	publish("good evening")
	<-p.heard

	// Output:
	// message: good morning
	// message: good evening
}
