package demo

import (
	"context"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// startRelay starts a relay that the clients use in place of the control plane.
func (m *mesh) startRelay() error {
	cfg, err := bootstrap.Parse("the demo's relay", m.plane.Bootstrap("dynxds-demo-relay",
		testutils.ServerFeatures("delta", "dynamic_parameter_constraints"), testutils.Authority(authority, "", nil)))
	if err != nil {
		return err
	}
	r, err := relay.New(relay.Options{Bootstrap: cfg, Server: controlplane.Options{WrapResources: true}})
	if err != nil {
		return err
	}
	m.undo = append(m.undo, r.Close)
	server, err := serve.New(r, serve.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	m.relay = server.Addr().String()
	ctx, drain := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	m.undo = append(m.undo, func() {
		drain()
		<-ended
	})
	return nil
}
