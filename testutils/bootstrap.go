package testutils

import (
	"encoding/json"
	"maps"
)

// BootstrapOption changes a bootstrap file.
type BootstrapOption func(*bootstrapFile)

// bootstrapFile is the file's JSON, kept open so that tests can add any key.
type bootstrapFile struct {
	top         map[string]any
	node        map[string]any
	servers     []map[string]any
	authorities map[string]map[string]any
}

// Bootstrap returns a bootstrap file with one server, without credentials (channel_creds "insecure"), and
// a node ID. It does not validate, so that invalid files are possible.
func Bootstrap(nodeID, serverURI string, opts ...BootstrapOption) []byte {
	f := &bootstrapFile{
		top:         map[string]any{},
		node:        map[string]any{"id": nodeID},
		servers:     []map[string]any{server(serverURI)},
		authorities: map[string]map[string]any{},
	}
	for _, opt := range opts {
		opt(f)
	}
	out := map[string]any{"xds_servers": f.servers, "node": f.node}
	if len(f.authorities) > 0 {
		out["authorities"] = f.authorities
	}
	maps.Copy(out, f.top)
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		panic("testutils: bootstrap: " + err.Error())
	}
	return text
}

// Bootstrap returns a bootstrap file for this server.
func (f *FakeServer) Bootstrap(nodeID string, opts ...BootstrapOption) []byte {
	return Bootstrap(nodeID, f.Addr(), opts...)
}

// ServerFeatures sets server_features of the (first) server.
func ServerFeatures(features ...string) BootstrapOption {
	return func(f *bootstrapFile) { f.servers[0]["server_features"] = features }
}

// FurtherServer appends a server to fall back to (gRFC A71).
func FurtherServer(uri string, features ...string) BootstrapOption {
	return func(f *bootstrapFile) { f.servers = append(f.servers, server(uri, features...)) }
}

// Authority adds an authority with its own server (gRFC A47) or, if uri is empty, the top-level ones.
// fields are further keys of the authority, and may be nil.
func Authority(name, uri string, fields map[string]any) BootstrapOption {
	return func(f *bootstrapFile) {
		a := map[string]any{}
		maps.Copy(a, fields)
		if uri != "" {
			a["xds_servers"] = []map[string]any{server(uri)}
		}
		f.authorities[name] = a
	}
}

// NodeField sets a field of the node, such as "metadata" or "locality".
func NodeField(key string, value any) BootstrapOption {
	return func(f *bootstrapFile) { f.node[key] = value }
}

// TopLevel sets a top-level key. It overrides other options.
func TopLevel(key string, value any) BootstrapOption {
	return func(f *bootstrapFile) { f.top[key] = value }
}

func server(uri string, features ...string) map[string]any {
	s := map[string]any{
		"server_uri":    uri,
		"channel_creds": []map[string]any{{"type": "insecure"}},
	}
	if len(features) > 0 {
		s["server_features"] = features
	}
	return s
}
