package bootstrap

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// digest returns a hash of v, which has to consist of values that encoding/json writes in
// one way only.
func digest(v any) string {
	text, _ := json.Marshal(v) // of texts, bytes, numbers, lists and maps
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// fingerprintOf digests the parsed Config and not the document, so that defaults and unknown
// keys make no difference.
func fingerprintOf(c *Config) string {
	authorities, providers, constraints := map[string]any{}, map[string]any{}, map[string]any{}
	for name, a := range c.Authorities {
		authorities[name] = []any{a.Servers, a.ClientListenerTemplate, a.DynamicParameterConstraintsResource}
	}
	for name, p := range c.CertificateProviders {
		providers[name] = []any{p.PluginName, canonical(p.Config)}
	}
	for _, name := range c.Constraints.Types() {
		constraints[name] = []byte(c.Constraints.For(name).Key())
	}
	locality := c.Node.GetLocality()
	parts := []any{
		c.Servers, authorities, providers, constraints,
		c.Node.GetId(), c.Node.GetCluster(), c.Node.GetMetadata().AsMap(),
		locality.GetRegion(), locality.GetZone(), locality.GetSubZone(),
		c.ClientListenerTemplate, c.ServerListenerTemplate, c.DNSFallback,
	}
	if cache := c.ResourceCache; cache.Directory != "" {
		parts = append(parts, cache.Directory, cache.MaxAge)
	}
	if len(c.AllowedServices) > 0 {
		parts = append(parts, c.AllowedServices)
	}
	return digest(parts)
}

// canonical returns the value of raw in a form that encoding/json writes in one way, whatever
// the order of keys and the white space in raw.
func canonical(raw json.RawMessage) any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var v any
	_ = decoder.Decode(&v) // of a part of a document that was read
	return v
}
