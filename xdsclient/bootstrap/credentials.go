package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/jwt"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

// BuildCredentials makes the channel credentials for one connection to a management
// server. release, which may be nil, ends whatever the credentials started (a goroutine
// that refreshes a token, say); it is called once, after the connection is closed.
// BuildCredentials may be called from any goroutine.
type BuildCredentials func() (bundle credentials.Bundle, release func(), err error)

// buildCallCredentials is BuildCredentials for call credentials.
type buildCallCredentials = func() (creds credentials.PerRPCCredentials, release func(), err error)

// CredentialsBuilder is a type of channel credentials. Implementations are safe for
// concurrent use.
type CredentialsBuilder interface {
	// Type is the name in channel_creds[].type.
	Type() string
	// ParseConfig validates channel_creds[].config, a JSON object, "{}" if the document
	// has none. It opens and starts nothing: that is for the function it returns, which
	// must not be nil beside a nil error.
	//
	// An error says what was expected and does not repeat values of config, which may be
	// secrets. A *Faults, with paths relative to config, is shown as it is; values of
	// config are removed from any other error.
	ParseConfig(config json.RawMessage) (BuildCredentials, error)
}

// CallCredentialsBuilder is a type of call credentials (gRFC A97): the counterpart of
// CredentialsBuilder for call_creds.
type CallCredentialsBuilder interface {
	Type() string
	ParseConfig(config json.RawMessage) (build func() (creds credentials.PerRPCCredentials, release func(), err error), err error)
}

var (
	channelTypes = newRegistry[BuildCredentials](insecureBuilder{}, tlsBuilder{})
	callTypes    = newRegistry[buildCallCredentials](jwtBuilder{})
)

// RegisterCredentials makes a type of channel credentials known to Parse. It is meant for
// init functions and panics if the type is taken, as which of two builders is used must
// not depend on the order of init functions.
func RegisterCredentials(b CredentialsBuilder) { channelTypes.register(b) }

// RegisterCallCredentials makes a type of call credentials known to Parse. The types of
// channel and call credentials are apart; otherwise it is like RegisterCredentials.
func RegisterCallCredentials(b CallCredentialsBuilder) { callTypes.register(b) }

// A builder is a CredentialsBuilder or a CallCredentialsBuilder.
type builder[Build any] interface {
	Type() string
	ParseConfig(json.RawMessage) (Build, error)
}

// A registry holds the builders of channel credentials, or those of call credentials.
type registry[Build any] struct {
	mu     sync.RWMutex
	byType map[string]builder[Build]
}

func newRegistry[Build any](builtIn ...builder[Build]) *registry[Build] {
	r := &registry[Build]{byType: make(map[string]builder[Build])}
	for _, b := range builtIn {
		r.register(b)
	}
	return r
}

func (r *registry[Build]) register(b builder[Build]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.byType[b.Type()]; ok {
		panic(fmt.Sprintf("bootstrap: %T and %T both register credentials of type %q", old, b, b.Type()))
	}
	r.byType[b.Type()] = b
}

func (r *registry[Build]) types() string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return strings.Join(slices.Sorted(maps.Keys(r.byType)), ", ")
}

// creds is an entry of channel_creds or call_creds.
type creds[Build any] struct {
	name    string
	config  pluginConfig
	builder builder[Build] // nil if the type is not registered
	build   Build
	// preferred are the first types of channel_creds before this one, in quotes. This program does not
	// support them.
	preferred []string
}

// parseEntry checks the shape of an entry. It does not parse the configuration: one of an
// unknown type is for other programs.
func (r *registry[Build]) parseEntry(v jsondoc.Value) (c creds[Build], ok bool) {
	o := v.Object("type", "config")
	if !o.IsObject() {
		return c, false
	}
	var hasType, hasConfig bool
	c.name, hasType = o.Field("type").NonEmptyText("the type of the credentials")
	c.config, hasConfig = parsePluginConfig(o.Field("config"))
	r.mu.RLock()
	defer r.mu.RUnlock()
	c.builder = r.byType[c.name]
	return c, hasType && hasConfig
}

func (c *creds[Build]) parseConfig() {
	var err error
	if c.build, err = c.builder.ParseConfig(c.config.raw); err != nil {
		c.config.fail(err)
	}
}

// key identifies the credentials.
func (c *creds[Build]) key() any { return []any{c.name, canonical(c.config.raw)} }

// parseChannelCreds returns the first credentials of the list whose type is supported
// (gRFC A27), or an error without a place if no type is.
func parseChannelCreds(v jsondoc.Value) (chosen creds[BuildCredentials], unsupported error) {
	var offered []string
	unreadable := false // one of them may have a type that is supported
	for _, element := range v.NonEmpty("a list with at least one kind of channel credentials") {
		c, ok := channelTypes.parseEntry(element)
		switch {
		case !ok:
			unreadable = true
			continue
		case c.builder != nil && chosen.builder == nil:
			chosen = c
			chosen.preferred = slices.Clone(offered)
		}
		if len(offered) < maxListed {
			offered = append(offered, faults.Quote(c.name))
		}
	}
	if chosen.builder != nil {
		if chosen.name == (tlsBuilder{}).Type() {
			chosen.config.Know(append(certfiles.Keys(), serverIDs)...)
		}
		chosen.parseConfig()
		return chosen, nil
	}
	if unreadable || len(offered) == 0 {
		return chosen, nil
	}
	return chosen, fmt.Errorf("expected a type that this program supports (%s), found only %s; %s",
		channelTypes.types(), strings.Join(offered, ", "), support(offered))
}

// support says how a program comes to support one of the types, which are in quotes.
func support(types []string) string {
	if slices.Contains(types, `"google_default"`) {
		return `import _ "github.com/dynxds/dynxds/xdsclient/bootstrap/googledefault" for google_default`
	}
	return "add a type with bootstrap.RegisterCredentials"
}

// parseCallCreds returns all credentials of the list whose type is supported (gRFC A97).
func parseCallCreds(v jsondoc.Value) []creds[buildCallCredentials] {
	if v.Absent() {
		return nil
	}
	var all []creds[buildCallCredentials]
	for _, element := range v.Elements("a list of call credentials") {
		if c, ok := callTypes.parseEntry(element); ok && c.builder != nil {
			c.parseConfig()
			all = append(all, c)
		}
	}
	return all
}

// pluginConfig is a configuration that a plugin parses.
type pluginConfig struct {
	jsondoc.Value
	raw json.RawMessage // a JSON object as it is written, "{}" if there is none
}

// fail reports what the plugin's parser says, without the values of the configuration.
func (c pluginConfig) fail(err error) {
	if _, ok := errors.AsType[*Faults](err); !ok {
		err = errors.New(redact(c.raw, err.Error()))
	}
	fail(c.Value, err)
}

func parsePluginConfig(v jsondoc.Value) (config pluginConfig, ok bool) {
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

const insecureType = "insecure"

// insecureBuilder is the type "insecure": plain text, no authentication.
type insecureBuilder struct{}

func (insecureBuilder) Type() string { return insecureType }

func (insecureBuilder) ParseConfig(json.RawMessage) (BuildCredentials, error) {
	return func() (credentials.Bundle, func(), error) { return insecure.NewBundle(), nil, nil }, nil
}

// jwtBuilder is the type "jwt_token_file" of call credentials (gRFC A97): a bearer token
// from a file, which is read again before the token expires.
type jwtBuilder struct{}

func (jwtBuilder) Type() string { return "jwt_token_file" }

func (jwtBuilder) ParseConfig(config json.RawMessage) (buildCallCredentials, error) {
	found := new(Faults)
	v, err := jsondoc.Parse(config, found)
	if err != nil {
		return nil, err
	}
	path, ok := v.Object("jwt_token_file").Field("jwt_token_file").NonEmptyText("the path of a file")
	if !ok {
		return nil, found.Err()
	}
	return func() (credentials.PerRPCCredentials, func(), error) {
		creds, err := jwt.NewTokenFileCallCredentials(path)
		return creds, nil, err
	}, nil
}
