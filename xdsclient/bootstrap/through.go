package bootstrap

import (
	"encoding/json"
	"slices"
)

// Through returns the document for clients that reach the management servers through a relay at the gRPC target
// uri, such as "unix:///run/xds.sock", without credentials. The relay is the only server of all authorities; it is
// trusted as the first server of the document is, has that one's features, and speaks delta. The
// resource_cache is the relay's. The rest, the node for example, is that of the document.
func (c *Config) Through(uri string) []byte {
	features := []Feature{FeatureDelta}
	for _, f := range c.Servers[0].Features {
		if !slices.Contains(features, f) {
			features = append(features, f)
		}
	}
	top := canonical(c.document).(map[string]any) // Parse has read it
	top["xds_servers"] = []any{map[string]any{
		"server_uri":      uri,
		"channel_creds":   []any{map[string]any{"type": "insecure"}},
		"server_features": features,
	}}
	delete(top, "resource_cache")
	authorities, _ := top["authorities"].(map[string]any)
	for _, entry := range authorities {
		delete(entry.(map[string]any), "xds_servers")
	}
	document, _ := json.Marshal(top) // of maps and texts
	return document
}
