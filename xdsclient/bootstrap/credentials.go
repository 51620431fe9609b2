package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// registry has, by type, the parsers of channel credentials, or those of call credentials, which report errors in the document.
// It is complete when the program's init functions have run.
type registry[Build any] map[string]func(config jsondoc.Value) (build Build, warning string)

var (
	channelTypes = registry[BuildCredentials]{insecureType: parseInsecure, "tls": parseTLS}
	callTypes    = registry[buildCallCredentials]{"jwt_token_file": parseJWT}
)

// RegisterCredentials makes a type of channel credentials known to Parse. It is for
// init functions only and panics if the type is taken, as which of two builders is used must
// not depend on the order of init functions.
func RegisterCredentials(b CredentialsBuilder) { channelTypes.register(b.Type(), b, b.ParseConfig) }

// RegisterCallCredentials makes a type of call credentials known to Parse. The types of
// channel and call credentials are apart; otherwise it is like RegisterCredentials.
func RegisterCallCredentials(b CallCredentialsBuilder) {
	callTypes.register(b.Type(), b, b.ParseConfig)
}

func (r registry[Build]) register(name string, builder any, parse func(json.RawMessage) (Build, error)) {
	if _, taken := r[name]; taken {
		panic(fmt.Sprintf("bootstrap: %T registers credentials of type %q, which are registered already", builder, name))
	}
	r[name] = func(config jsondoc.Value) (Build, string) {
		build, err := parse(textOf(config))
		if _, ok := errors.AsType[*Faults](err); err != nil && !ok {
			err = errors.New(redact(textOf(config), err.Error()))
		}
		fail(config, err)
		return build, ""
	}
}

func (r registry[Build]) types() string { return strings.Join(slices.Sorted(maps.Keys(r)), ", ") }

// creds are credentials that a document has, or a trusted server sends.
type creds[Build any] struct {
	name   string
	config jsondoc.Value
	build  Build
	// warning says of a service with the credentials what is logged when they are first used, if it is not empty.
	warning string
}

// key identifies the credentials.
func (c *creds[Build]) key() any { return []any{c.name, canonical(textOf(c.config))} }

// parseEntry checks the shape of an entry of channel_creds or call_creds. It does not parse the configuration: one of an
// unknown type is for other programs.
func parseEntry(v jsondoc.Value) (name string, config jsondoc.Value, ok bool) {
	o := v.Object("type", "config")
	name, hasType := o.Field("type").NonEmptyText("the type of the credentials")
	config, hasConfig := parsePluginConfig(o)
	return name, config, hasType && hasConfig
}

// parseChannelCreds returns the first credentials of the list whose type is supported
// (gRFC A27), or an error without a place if no type is.
func parseChannelCreds(v jsondoc.Value) (chosen creds[BuildCredentials], unsupported error) {
	var offered []string
	unreadable := false // one of them may have a type that is supported
	for _, element := range v.NonEmpty("a list with at least one kind of channel credentials") {
		name, config, ok := parseEntry(element)
		switch parse := channelTypes[name]; {
		case !ok:
			unreadable = true
		case chosen.name != "":
		case parse != nil:
			chosen.name, chosen.config = name, config
			if chosen.build, chosen.warning = parse(config); name == insecureType && len(offered) > 0 {
				chosen.warning = fmt.Sprintf("is reached in plaintext: %s has %s before insecure, which this program does not support; %s",
					v.Path(), strings.Join(offered, ", "), support(offered))
			}
		case len(offered) < maxListed:
			offered = append(offered, faults.Quote(name))
		}
	}
	if chosen.name != "" || unreadable || len(offered) == 0 {
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
func parseCallCreds(v jsondoc.Value) (all []creds[buildCallCredentials]) {
	for _, element := range v.Elements("a list of call credentials") {
		if name, config, ok := parseEntry(element); ok && callTypes[name] != nil {
			build, _ := callTypes[name](config)
			all = append(all, creds[buildCallCredentials]{name: name, config: config, build: build})
		}
	}
	return all
}

// parsePluginConfig returns a configuration that a plugin parses, which is an object or absent.
func parsePluginConfig(o jsondoc.Object) (config jsondoc.Value, ok bool) {
	if config = o.Optional("config"); config.Present() && !config.IsObject() {
		config.Expected("an object")
		return config, false
	}
	return config, true
}

// textOf returns the JSON object of a configuration as it is written, "{}" if there is none.
func textOf(config jsondoc.Value) json.RawMessage {
	if !config.Present() {
		return json.RawMessage("{}")
	}
	return config.Raw()
}

// insecureType is a type that is built in.
const insecureType = "insecure"

// parseInsecure is for the type "insecure": plain text, no authentication.
func parseInsecure(jsondoc.Value) (BuildCredentials, string) {
	return func() (credentials.Bundle, func(), error) { return insecure.NewBundle(), nil, nil }, ""
}

// parseJWT is for the type "jwt_token_file" of call credentials (gRFC A97): a bearer token
// from a file, which is read again before the token expires.
func parseJWT(config jsondoc.Value) (buildCallCredentials, string) {
	path := certfiles.ReadPath(config.Object("jwt_token_file").Field("jwt_token_file"))
	return func() (credentials.PerRPCCredentials, func(), error) {
		creds, err := jwt.NewTokenFileCallCredentials(path)
		return creds, nil, err
	}, ""
}
