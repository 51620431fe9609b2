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
	top := objectOf(c.document)
	top["xds_servers"] = jsonOf([]any{map[string]any{
		"server_uri":      uri,
		"channel_creds":   []any{map[string]any{"type": "insecure"}},
		"server_features": features,
	}})
	delete(top, "resource_cache")
	if authorities := objectOf(top["authorities"]); len(authorities) > 0 {
		for name, entry := range authorities {
			fields := objectOf(entry)
			delete(fields, "xds_servers")
			authorities[name] = jsonOf(fields)
		}
		top["authorities"] = jsonOf(authorities)
	}
	return jsonOf(top)
}

// objectOf returns the fields of an object in a valid document, none if it is absent.
func objectOf(data []byte) map[string]json.RawMessage {
	fields := make(map[string]json.RawMessage)
	_ = json.Unmarshal(data, &fields) // Parse has read it
	return fields
}

func jsonOf(value any) json.RawMessage {
	data, _ := json.Marshal(value) // of maps and texts
	return data
}
