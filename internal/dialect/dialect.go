// Package dialect says what other xDS clients than those of dynxds do differently, in one table: for reports on
// documents of a mesh, and for explanations of what a client does. The facts are those of gRPC-Go 1.85,
// C-core 1.76, grpc-js 1.14 and Envoy 1.36.
package dialect

import (
	"fmt"
	"slices"
)

// Implementation is the implementation of an xDS client.
type Implementation int

// The implementations that differ.
const (
	// Dynxds supports everything. Its clients announce that in Node.client_features.
	Dynxds Implementation = iota
	// GRPCGo is the xds package of gRPC-Go.
	GRPCGo
	// OtherGRPC is gRPC in another language, or an unknown client, which counts as the least capable.
	OtherGRPC
	// Envoy supports all routes.
	Envoy
	// GRPCJS is gRPC in JavaScript.
	GRPCJS
)

// The user agents of nodes.
const (
	UserAgentDynxds = "dynxds"
	UserAgentGo     = "gRPC Go"
	UserAgentJS     = "gRPC Node Pure JS"
	UserAgentEnvoy  = "envoy"
	// UserAgentRelay is that of a relay for clients of several implementations, which counts as the least
	// capable of them.
	UserAgentRelay = "dynxds relay"
)

// RelayFeature in Node.client_features marks a relay of dynxds, whose node is otherwise that of its clients: it
// understands errors in place of resources, whatever they do.
const RelayFeature = "dynxds.relay"

// ClientFeature in Node.client_features marks a client of dynxds.
const ClientFeature = "dynxds.client"

// Of returns the implementation of a node with a user agent and client features. An unknown one counts as the least
// capable.
func Of(userAgent string, features []string) Implementation {
	if slices.Contains(features, ClientFeature) {
		return Dynxds
	}
	switch userAgent {
	case UserAgentDynxds:
		return Dynxds
	case UserAgentGo:
		return GRPCGo
	case UserAgentJS:
		return GRPCJS
	case UserAgentEnvoy:
		return Envoy
	default:
		return OtherGRPC
	}
}

// IsGRPC reports whether it is gRPC without dynxds: it has what the gRFCs have.
func (c Implementation) IsGRPC() bool { return c == GRPCGo || c == OtherGRPC || c == GRPCJS }

// Effect is what a client does about a feature.
type Effect int

// The effects.
const (
	// Obeys: as dynxds does.
	Obeys Effect = iota
	// Ignores: the client does as if it were not there.
	Ignores
	// LeavesOut: the client does without the route or the endpoint.
	LeavesOut
	// Rejects: the client rejects the resource.
	Rejects
	// Absent: the client takes the header for absent.
	Absent
)

// Feature is something in a resource that not every client does the same about.
type Feature struct {
	// name is that in texts about one client.
	name    string
	effects [GRPCJS + 1]Effect
	// Note is the report for authors of documents, "" for none.
	Note string
}

// On returns what a client does about a feature.
func (f *Feature) On(c Implementation) Effect { return f.effects[c] }

// About says what the client called name does about a feature, "" for one that obeys it.
func (f *Feature) About(c Implementation, name string) string {
	switch f.effects[c] {
	case Ignores:
		return fmt.Sprintf("%s ignores %s", name, f.name)
	case LeavesOut:
		return fmt.Sprintf("%s leaves out routes with %s (gRFC A28)", name, f.name)
	case Rejects:
		return fmt.Sprintf("%s rejects %s", name, f.name)
	default:
		return ""
	}
}

func grpc(e Effect) [GRPCJS + 1]Effect {
	return [...]Effect{GRPCGo: e, OtherGRPC: e, GRPCJS: e}
}

func noneBut(e Effect) [GRPCJS + 1]Effect {
	return [...]Effect{GRPCGo: e, OtherGRPC: e, GRPCJS: e, Envoy: e}
}
