// Package router is the terminal HTTP filter (gRFC A39, "The Router Filter").
// Every chain ends in it; it stands for sending the RPC, which
// configselector/internal/router does. All fields of its configuration are ignored, as A39
// says.
package router

import (
	"fmt"

	routerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
)

// typeURL is the type of the router's configuration.
const typeURL = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"

func init() { httpfilter.Register(filter{}) }

type filter struct{}

func (filter) TypeURLs() []string { return []string{typeURL} }

func (filter) IsTerminal() bool { return true }

func (filter) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	if err := httpfilter.UnmarshalConfig(config, new(routerpb.Router)); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return nil, nil
}
