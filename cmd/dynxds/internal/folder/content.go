package folder

import (
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/meshroute"
)

// Kinds of documents, beside meshpolicy.DocumentKind.
const (
	kindService  = "Service"
	kindDenial   = "Denial"
	kindResource = "Resource"
)

// Content is what a folder says. It is not to be changed.
type Content struct {
	Services  []*meshroute.Service
	Policies  []*meshroute.Policy
	Denials   []meshroute.Denial
	Resources []*Resource
	// Files is how many files there are.
	Files int
}

// Documents is how many documents there are; nil has none.
func (c *Content) Documents() int {
	if c == nil {
		return 0
	}
	return len(c.Services) + len(c.Policies) + len(c.Denials) + len(c.Resources)
}

// Resource is an xDS resource as somebody wrote it.
type Resource struct {
	Source meshroute.Source
	Name   string
	// Parameters are its dynamic parameters (xRFC TP2), nil for none.
	Parameters map[string]string
	Any        *anypb.Any
}

// add appends what one file has.
func (c *Content) add(f *Content) {
	c.Services = append(c.Services, f.Services...)
	c.Policies = append(c.Policies, f.Policies...)
	c.Denials = append(c.Denials, f.Denials...)
	c.Resources = append(c.Resources, f.Resources...)
}
