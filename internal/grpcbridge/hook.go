package grpcbridge

import (
	"net/url"
	"slices"
	"strings"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/boundlog"
)

var logger = boundlog.Component("dynxds")

// The two hooks of google.golang.org/grpc/internal that gRPC's own plug-ins
// use (stats/opentelemetry/csm does). A hook that a future gRPC drops is nil
// here, and Install says so.

//go:linkname addGlobalPerTargetDialOptions google.golang.org/grpc/internal.AddGlobalPerTargetDialOptions
var addGlobalPerTargetDialOptions any

//go:linkname joinDialOptions google.golang.org/grpc/internal.JoinDialOptions
var joinDialOptions any

// Install makes every channel created from now on with a target of one of the
// schemes carry the interceptors, as the innermost of its chain. It is for
// init functions. If gRPC no longer has the hook this needs, Install logs one
// error that names the way around it, and returns false.
func Install(schemes ...string) bool {
	add, addOK := addGlobalPerTargetDialOptions.(func(any))
	join, joinOK := joinDialOptions.(func(...grpc.DialOption) grpc.DialOption)
	if !addOK || !joinOK {
		logger.Errorf("gRPC %s has no hook for dial options per target: importing dynxds alone does not route RPCs. "+
			"Pass dynxds.DialOptions() to grpc.NewClient instead.", grpc.Version)
		return false
	}
	installed = append(installed, schemes...)
	add(perTarget{schemes: schemes, join: join})
	return true
}

// installed has the schemes of Install.
var installed []string

// reached reports whether Install gave the channel interceptors.
func reached(cc *grpc.ClientConn) bool {
	scheme, _, _ := strings.Cut(cc.CanonicalTarget(), ":")
	return slices.Contains(installed, scheme)
}

// perTarget is what gRPC asks for the dial options of each new channel.
type perTarget struct {
	schemes []string
	join    func(...grpc.DialOption) grpc.DialOption
}

// DialOptionForTarget is called by gRPC once per channel, after the options
// of the application were applied.
func (p perTarget) DialOptionForTarget(target url.URL) grpc.DialOption {
	if !slices.Contains(p.schemes, target.Scheme) {
		return grpc.EmptyDialOption{}
	}
	return p.join(new(interceptors).options()...)
}

// DialOptions returns the interceptors as dial options, for channels that
// Install does not reach. Where Install does reach the channel these options
// do nothing, so that an application sees one behaviour however it came by
// them. They may be shared by any number of channels, and channels whose
// resolver is not ours are left alone.
func DialOptions() []grpc.DialOption {
	return (&interceptors{explicit: true}).options()
}

func (i *interceptors) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(i.unary), grpc.WithChainStreamInterceptor(i.stream)}
}
