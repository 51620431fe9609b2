package grpcbridge

import (
	"net/url"
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
	add(perTarget{schemes: schemes, join: join})
	return true
}

// perTarget is what gRPC asks for the dial options of each new channel.
type perTarget struct {
	schemes []string
	join    func(...grpc.DialOption) grpc.DialOption
}

// DialOptionForTarget is called by gRPC once per channel, after the options
// of the application were applied.
func (p perTarget) DialOptionForTarget(target url.URL) grpc.DialOption {
	for _, s := range p.schemes {
		if target.Scheme == s {
			claimed.dialled(target)
			i := installedInterceptors()
			return p.join(
				grpc.WithChainUnaryInterceptor(installedUnary(i)),
				grpc.WithChainStreamInterceptor(i.stream),
			)
		}
	}
	return grpc.EmptyDialOption{}
}

// DialOptions returns the interceptors as dial options, for channels that
// Install does not reach. Where Install does reach the channel these options
// do nothing, so that an application sees one behaviour however it came by
// them. They may be shared by any number of channels, and channels whose
// resolver is not ours are left alone.
func DialOptions() []grpc.DialOption {
	ResolvePerChannel()
	i := explicitInterceptors()
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(i.unary),
		grpc.WithChainStreamInterceptor(i.stream),
	}
}
