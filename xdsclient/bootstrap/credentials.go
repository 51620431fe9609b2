package bootstrap

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/faults"
)

// BuildCredentials makes the credentials for one connection to a management
// server. release, which may be nil, ends whatever the credentials started (a
// goroutine that refreshes a token, say); whoever dials calls it once, after
// the connection is closed. It may be called from any goroutine.
type BuildCredentials func() (bundle credentials.Bundle, release func(), err error)

// CredentialsBuilder is a type of channel credentials. Implementations are safe
// for concurrent use.
type CredentialsBuilder interface {
	// Type is the name in channel_creds[].type.
	Type() string
	// ParseConfig validates channel_creds[].config, a JSON object, "{}" if the
	// document has none. It opens and starts nothing: that is for the function
	// it returns, which must not be nil beside a nil error.
	//
	// An error says what was expected and does not repeat values of config,
	// which may be secrets. A *Faults, with paths relative to config, is shown
	// as it is; values of config are removed from any other error.
	ParseConfig(config json.RawMessage) (BuildCredentials, error)
}

var credentialTypes = struct {
	sync.RWMutex
	byType map[string]CredentialsBuilder
}{byType: make(map[string]CredentialsBuilder)}

func init() {
	RegisterCredentials(insecureBuilder{})
	RegisterCredentials(tlsBuilder{})
}

// RegisterCredentials makes a type of channel credentials known to Parse. It is
// meant for init functions and panics if the type is taken, as which of two
// builders is used must not depend on the order of init functions.
func RegisterCredentials(b CredentialsBuilder) {
	credentialTypes.Lock()
	defer credentialTypes.Unlock()
	if old, ok := credentialTypes.byType[b.Type()]; ok {
		panic(fmt.Sprintf("bootstrap: %T and %T both register credentials of type %q", old, b, b.Type()))
	}
	credentialTypes.byType[b.Type()] = b
}

func credentialsBuilder(name string) (CredentialsBuilder, bool) {
	credentialTypes.RLock()
	defer credentialTypes.RUnlock()
	b, ok := credentialTypes.byType[name]
	return b, ok
}

func supportedCredentials() string {
	credentialTypes.RLock()
	defer credentialTypes.RUnlock()
	return strings.Join(slices.Sorted(maps.Keys(credentialTypes.byType)), ", ")
}

// channelCreds is the entry of channel_creds that is used.
type channelCreds struct {
	builder CredentialsBuilder
	config  pluginConfig
	build   BuildCredentials
}

// parseChannelCreds uses the first credentials of the list whose type is
// supported (gRFC A27). Of those behind it only the shape is checked: their
// configuration is for programs that support them.
func parseChannelCreds(v document.Value) channelCreds {
	var chosen channelCreds
	var offered []string
	unreadable := false // one of them may be a type that is supported
	for _, element := range v.NonEmpty("a list with at least one kind of channel credentials") {
		name, config, ok := parseCredsEntry(element)
		if !ok {
			unreadable = true
			continue
		}
		if builder, known := credentialsBuilder(name); known && chosen.builder == nil {
			chosen = channelCreds{builder: builder, config: config}
		}
		if len(offered) < maxListed {
			offered = append(offered, faults.Quote(name))
		}
	}
	switch {
	case chosen.builder != nil:
		chosen.parse()
	case unreadable || len(offered) == 0:
	default:
		v.Fault("", "expected a type that this program supports (%s), found only %s; add a type with bootstrap.RegisterCredentials",
			supportedCredentials(), strings.Join(offered, ", "))
	}
	return chosen
}

func parseCredsEntry(v document.Value) (name string, config pluginConfig, ok bool) {
	o := v.Object("type", "config")
	if !o.IsObject() {
		return "", pluginConfig{}, false
	}
	name, hasType := o.Field("type").NonEmptyText("the type of the credentials")
	config, hasConfig := parsePluginConfig(o.Field("config"))
	return name, config, hasType && hasConfig
}

func (c *channelCreds) parse() {
	build, err := c.builder.ParseConfig(c.config.raw)
	if err != nil {
		c.config.fail(err)
		return
	}
	c.build = build
}

// pluginConfig is a configuration that a plugin parses.
type pluginConfig struct {
	document.Value
	raw json.RawMessage // a JSON object as it is written, "{}" if there is none
}

// fail reports what the plugin's parser says, without the values of the configuration.
func (c pluginConfig) fail(err error) {
	failWith(c.Value, err, func(text string) string { return redact(c.raw, text) })
}

func parsePluginConfig(v document.Value) (config pluginConfig, ok bool) {
	switch {
	case v.Absent():
		return pluginConfig{v, json.RawMessage("{}")}, true
	case !v.IsObject():
		v.Expected("an object")
		return pluginConfig{}, false
	default:
		return pluginConfig{v, v.Raw()}, true
	}
}

// insecureBuilder is the type "insecure": plain text, no authentication.
type insecureBuilder struct{}

func (insecureBuilder) Type() string { return "insecure" }

func (insecureBuilder) ParseConfig(json.RawMessage) (BuildCredentials, error) {
	return func() (credentials.Bundle, func(), error) { return insecure.NewBundle(), nil, nil }, nil
}
