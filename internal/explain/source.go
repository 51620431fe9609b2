package explain

import (
	"time"

	"google.golang.org/protobuf/types/known/anypb"
)

// Request describes RPCs of one method.
type Request struct {
	// Target is what the channel was dialled with, "xds:///backend", or only "backend".
	Target string `json:"target,omitempty"`
	// Listener is the name of the Listener, if the target alone does not give it.
	Listener string `json:"listener,omitempty"`
	// Method is the full method, "/package.Service/Method".
	Method string `json:"method"`
	// Headers is the metadata, with keys in lower case.
	Headers map[string][]string `json:"headers,omitempty"`
	// Authority is that of the channel (grpc.WithAuthority). Empty: the target's endpoint.
	Authority string `json:"authority,omitempty"`
	// Secure says that the scheme is "https".
	Secure bool `json:"secure,omitempty"`
}

// A Source is what one xDS client holds, or would hold.
type Source struct {
	Client    Client
	Resources []*Resource
	// ListenerName returns the name of the Listener for a target. nil: it is found by
	// comparing the target with the names of the Listeners.
	ListenerName func(target string) (string, error)
}

// A Resource is a resource that a client holds, or has asked for.
type Resource struct {
	TypeURL, Name string
	// Variant is the constraints that it is watched with or, for the member of a collection,
	// its parameters (xRFC TP2).
	Variant string
	// State is as in ResourceStatus.
	State string
	// Raw is the version in use. nil: none.
	Raw *anypb.Any
	// Value is what this module's decoder has made of Raw. nil: it is decoded when needed.
	Value           any
	Version, Server string
	Updated         time.Time
	// Error, ErrorVersion and ErrorTime are as in ResourceStatus.
	Error, ErrorVersion string
	ErrorTime           time.Time
}
