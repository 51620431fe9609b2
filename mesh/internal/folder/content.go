package folder

import (
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// Kinds of documents, beside those of package meshpolicy.
const (
	kindService  = "Service"
	kindResource = "Resource"
)

// kinds are all kinds of documents.
var kinds = []string{kindService, meshpolicy.DocumentKind, meshpolicy.GRPCRouteKind, meshpolicy.HTTPRouteKind, kindResource}

// Content is the content of a folder. It must not be changed.
type Content struct {
	Services  []*meshroute.Service
	Policies  []*meshroute.Policy
	Resources []*Resource
	// Separate is meshroute.Input.Separate. Without it nothing of a content with an error is published.
	Separate bool
	// Reports are on what the reader left out, if it is Separate.
	Reports []meshroute.Report
	// Dir is the folder's path, and Files the number of its files.
	Dir   string
	Files int
}

// Documents returns the number of documents; nil has none.
func (c *Content) Documents() int {
	if c == nil {
		return 0
	}
	return len(c.Services) + len(c.Policies) + len(c.Resources)
}

// Resource is an xDS resource of the folder.
type Resource struct {
	Source meshroute.Source
	Name   string
	// Parameters are its dynamic parameters (xRFC TP2), nil for none.
	Parameters map[string]string
	// Override replaces what services and policies make under its name, with all variants.
	Override bool
	Any      *anypb.Any
}
