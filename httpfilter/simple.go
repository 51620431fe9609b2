package httpfilter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
)

// HeaderFilter is a Filter without state that looks at RPCs before they start
// and at nothing else of them. Its override configurations are of the same
// form as the top-level one and replace it as a whole.
type HeaderFilter[C any] struct {
	// Types are the type URLs of the configuration.
	Types []string
	// Parse validates a configuration; [ParseStruct] is one.
	Parse func(*anypb.Any) (C, error)
	// Start is called with each RPC. It may change the RPC, and returns the
	// context that the RPC goes on with, or the status error that it ends with.
	Start func(ctx context.Context, rpc *RPC, config C) (context.Context, error)
}

// TypeURLs implements Filter.
func (f HeaderFilter[C]) TypeURLs() []string { return f.Types }

// IsTerminal implements Filter.
func (f HeaderFilter[C]) IsTerminal() bool { return false }

// ParseConfig implements Filter.
func (f HeaderFilter[C]) ParseConfig(config *anypb.Any) (Config, error) {
	if f.Parse == nil {
		return nil, errors.New("the HeaderFilter has no Parse")
	}
	return f.Parse(config)
}

// ParseOverride implements OverrideParser.
func (f HeaderFilter[C]) ParseOverride(override *anypb.Any) (Config, error) {
	return f.ParseConfig(override)
}

// NewClientInstance implements ClientFilter.
func (f HeaderFilter[C]) NewClientInstance(ClientInstanceInfo) ClientInstance { return f }

// ClientInterceptor implements ClientInstance.
func (f HeaderFilter[C]) ClientInterceptor(config, override Config) (Interceptor, error) {
	if override != nil {
		config = override
	}
	c, ok := config.(C)
	if !ok {
		return nil, fmt.Errorf("the configuration is a %T", config)
	}
	if f.Start == nil {
		return nil, errors.New("the HeaderFilter has no Start")
	}
	return InterceptorFunc(func(ctx context.Context, rpc *RPC, next Next) (grpc.ClientStream, error) {
		ctx, err := f.Start(ctx, rpc, c)
		if err != nil {
			return nil, err
		}
		return next.NewStream(ctx, rpc)
	}), nil
}

// ParseStruct reads a TypedStruct into a Go value of type C by encoding/json,
// so that a filter needs no protobuf message of its own. A field that C does
// not have is an error.
func ParseStruct[C any](config *anypb.Any) (C, error) {
	var c C
	_, fields, err := TypedStruct(config)
	if err != nil {
		return c, err
	}
	if fields == nil {
		return c, fmt.Errorf("the configuration must be a TypedStruct, is %q", config.GetTypeUrl())
	}
	encoded, err := protojson.Marshal(fields)
	if err != nil {
		return c, err
	}
	d := json.NewDecoder(bytes.NewReader(encoded))
	d.DisallowUnknownFields()
	err = d.Decode(&c)
	return c, err
}
