package soak

import (
	"slices"

	"github.com/dynxds/dynxds/testutils"
)

// client is a kind of client of a mesh. The name is also the id of its node.
type client struct {
	name string
	dpds dpdsUse
	// features are those of the first control plane; further says that there is another
	// one to fall back to.
	features []string
	further  bool
	// via is the relay that the client has in place of the first control plane.
	via through
}

var clients = []client{
	{name: "SotW"},
	{name: "delta", features: []string{"delta"}},
	{name: "delta with another server to fall back to", features: []string{"delta"}, further: true},
	{name: "SotW through a relay", via: deltaRelay},
	{name: "delta through a relay", features: []string{"delta"}, via: sotwRelay},
	{name: "SotW with DPDS", dpds: keepsDPDS, features: []string{constrains}},
	{name: "delta with DPDS", dpds: keepsDPDS, features: []string{"delta", constrains}},
	{name: "SotW with DPDS through a relay", dpds: keepsDPDS, features: []string{constrains}, via: deltaRelay},
	{name: "delta with DPDS through a relay", dpds: keepsDPDS, features: []string{"delta", constrains}, via: sotwRelay},
	{name: "SotW with DPDS of another server", dpds: dropsDPDS, features: []string{constrains}},
	{name: "delta with DPDS of another server", dpds: dropsDPDS, features: []string{"delta", constrains}},
}

// constrains is the feature of servers that support constraints.
const constrains = "dynamic_parameter_constraints"

// lanedClients are those that use DPDS.
var lanedClients = slices.DeleteFunc(slices.Clone(clients), func(c client) bool { return c.dpds == noDPDS })

func (c client) target() string { return "xds://" + string(c.dpds.names()) + "/" + service }

func (c client) bootstrap(m *mesh) []byte {
	var opts []testutils.BootstrapOption
	if len(c.features) > 0 {
		opts = append(opts, testutils.ServerFeatures(c.features...))
	}
	if c.further {
		opts = append(opts, testutils.FurtherServer(m.second.Addr(), c.features...))
	}
	if c.dpds != noDPDS {
		opts = append(opts, testutils.Authority(string(lanedNames), "", map[string]any{
			"dynamic_parameter_constraints_resource": c.dpds.resource(),
		}))
	}
	if c.dpds == dropsDPDS {
		opts = append(opts, testutils.Authority(string(policyAuthority), "", map[string]any{
			"xds_servers": []map[string]any{{
				"server_uri":      m.policy.Addr(),
				"channel_creds":   []map[string]any{{"type": "insecure"}},
				"server_features": append([]string{"fail_on_data_errors"}, c.features...),
			}},
		}))
	}
	if c.via != noRelay {
		return testutils.Bootstrap(c.name, m.relays[c.via].addr.String(), opts...)
	}
	return m.control.Bootstrap(c.name, opts...)
}
