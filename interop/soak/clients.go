package soak

import (
	"path/filepath"
	"slices"

	"github.com/dynxds/dynxds/testutils"
)

// client is a kind of client of a mesh. The name is also that of its host, and the id of its node.
type client struct {
	name string
	dpds dpdsUse
	// features are those of the first control plane; further says that there is another
	// one to fall back to.
	features []string
	further  bool
	// secured says that it speaks mTLS to all of them.
	secured bool
	// via is the relay that the client has in place of the first control plane.
	via through
	// cached says that the client keeps its resources on disk.
	cached bool
	// starting says that it has started, and may not have had DPDS yet.
	starting bool
}

var clients = []client{
	{name: "SotW"},
	{name: "delta", features: []string{"delta", saysAbsence}},
	{name: "delta-with-another-server-to-fall-back-to", features: []string{"delta", saysAbsence}, further: true, secured: true},
	{name: "SotW-through-a-relay", via: deltaRelay, secured: true},
	{name: "delta-through-a-relay", features: []string{"delta"}, via: sotwRelay},
	{name: "SotW-with-DPDS", dpds: keepsDPDS, features: []string{constrains, saysAbsence}, secured: true},
	{name: "delta-with-DPDS", dpds: keepsDPDS, features: []string{"delta", constrains, saysAbsence}},
	{name: "SotW-with-DPDS-through-a-relay", dpds: keepsDPDS, features: []string{constrains}, via: deltaRelay},
	{name: "delta-with-DPDS-through-a-relay", dpds: keepsDPDS, features: []string{"delta", constrains}, via: sotwRelay},
	{name: "SotW-with-DPDS-of-another-server", dpds: dropsDPDS, features: []string{constrains}},
	{name: "delta-with-DPDS-of-another-server", dpds: dropsDPDS, features: []string{"delta", constrains, saysAbsence}, secured: true},
}

const (
	// constrains is the feature of servers that support constraints.
	constrains = "dynamic_parameter_constraints"
	// saysAbsence is the feature of servers that say which resources they lack: their silence says nothing.
	saysAbsence = "resource_timer_is_transient_error"
)

// laned are the clients that use DPDS.
func laned(all []client) []client {
	return slices.DeleteFunc(slices.Clone(all), func(c client) bool { return c.dpds == noDPDS })
}

func (c client) target() string { return "xds://" + string(c.dpds.names()) + "/" + service }

func (c client) bootstrap(m *mesh) []byte {
	front := m.control.Addr()
	if c.via != noRelay {
		front = m.relays[c.via].Addr()
	}
	servers := []any{m.server(c.name, front, c.secured, c.features...)}
	if c.further {
		servers = append(servers, m.server(c.name, m.second.Addr(), c.secured, c.features...))
	}
	opts := []testutils.BootstrapOption{
		testutils.TopLevel("xds_servers", servers),
		testutils.TopLevel("certificate_providers", map[string]any{
			provider: map[string]any{"plugin_name": "file_watcher", "config": m.certificates.bootstrap()},
		}),
	}
	if c.dpds != noDPDS {
		opts = append(opts, testutils.Authority(string(lanedNames), "", map[string]any{
			"dynamic_parameter_constraints_resource": c.dpds.resource(),
		}))
	}
	if c.dpds == dropsDPDS {
		features := append([]string{"fail_on_data_errors"}, c.features...)
		opts = append(opts, testutils.Authority(string(policyAuthority), "", map[string]any{
			"xds_servers": []any{m.server(c.name, m.policy.Addr(), c.secured, features...)},
		}))
	}
	if c.cached {
		opts = append(opts, testutils.TopLevel("resource_cache", map[string]any{"directory": filepath.Join(m.caches, c.name)}))
	}
	return testutils.Bootstrap(c.name, "", opts...)
}

// server is a control plane, by its address, in the bootstrap of a host.
func (m *mesh) server(host, addr string, secured bool, features ...string) map[string]any {
	creds := map[string]any{"type": "insecure"}
	if secured {
		creds = map[string]any{"type": "tls", "config": m.certificates.bootstrap()}
	}
	return map[string]any{"server_uri": uri(host, addr), "channel_creds": []any{creds}, "server_features": features}
}
