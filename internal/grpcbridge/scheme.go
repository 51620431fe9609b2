package grpcbridge

import (
	"reflect"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
)

// claimed has the schemes of Register.
var claimed sync.Map

// Register registers a Builder with gRPC, as resolver.Register does, and claims its scheme
// for dynxds. If another package registers a builder for the scheme afterwards, which the
// order of imports decides, the first channel with RPCs that is lost to it is reported in the log.
func Register(b resolver.Builder) {
	claimed.Store(b.Scheme(), true)
	resolver.Register(b)
}

// lost is done once a channel is reported, as gRPC's registry of resolvers is the process's.
var lost sync.Once

// reportLost reports a channel that dynxds does not serve although its scheme is ours. One that has a resolver of its own
// was not lost.
func reportLost(cc *grpc.ClientConn) {
	target := cc.CanonicalTarget()
	scheme, _, _ := strings.Cut(target, ":")
	builder := reflect.ValueOf(cc).Elem().FieldByIndex(builderField)
	if _, ours := claimed.Load(scheme); !ours || builder.IsNil() || builder.Elem().Type() != reflect.TypeOf(resolver.Get(scheme)) {
		return
	}
	from := builder.Elem().Type()
	if from.Kind() == reflect.Pointer {
		from = from.Elem()
	}
	lost.Do(func() {
		logger.Errorf("dynxds does not serve the channel to %q: package %s, which is linked too, has registered a resolver for the scheme %q after it. "+
			"For dynxds, dial the scheme \"dynxds\", pass dynxds.DialOptions() to grpc.NewClient, or call Register of github.com/dynxds/dynxds/resolver in main. "+
			"If the program has an xDS server of gRPC-Go and its control plane is an agent that serves one stream, as Istio's, call InProcess of github.com/dynxds/dynxds/mesh/relay too. "+
			"Further channels are not reported.", target, from.PkgPath(), scheme)
	})
}
