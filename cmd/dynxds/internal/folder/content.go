package folder

import (
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/mesh/meshroute"
)

// Kinds of documents, beside meshpolicy.DocumentKind.
const (
	kindService  = "Service"
	kindDenial   = "Denial"
	kindResource = "Resource"
	// Of Kubernetes.
	kindSlice = "EndpointSlice"
	kindList  = "List"
)

// Content is the content of a folder. It must not be changed.
type Content struct {
	Services  []*meshroute.Service
	Policies  []*meshroute.Policy
	Denials   []meshroute.Denial
	Resources []*Resource
	// Dir is the folder's path, and Files the number of its files.
	Dir   string
	Files int
}

// Documents returns the number of documents; nil has none.
func (c *Content) Documents() int {
	if c == nil {
		return 0
	}
	return len(c.Services) + len(c.Policies) + len(c.Denials) + len(c.Resources)
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

// add appends the content of one file.
func (c *Content) add(f *Content) {
	c.Policies = append(c.Policies, f.Policies...)
	c.Denials = append(c.Denials, f.Denials...)
	c.Resources = append(c.Resources, f.Resources...)
}
