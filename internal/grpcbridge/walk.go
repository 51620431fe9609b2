package grpcbridge

import (
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
)

// Builder is a resolver builder whose channels the bridge serves. A type that
// embeds one is one.
type Builder interface {
	resolver.Builder
	// BridgedToDynxds does nothing; it marks our builders.
	BridgedToDynxds()
}

var (
	clientConnType         = reflect.TypeFor[grpc.ClientConn]()
	clientConnPointerType  = reflect.TypeFor[*grpc.ClientConn]()
	resolverClientConnType = reflect.TypeFor[resolver.ClientConn]()
	bridgedType            = reflect.TypeFor[Builder]()

	// builderField is where a ClientConn keeps its resolver's builder. The
	// field is written once, before the ClientConn is handed out.
	builderField = fieldOfType(clientConnType, reflect.TypeFor[resolver.Builder]())
)

// fieldOfType returns the index path of the first field of struct type t that
// has the type want, or nil.
func fieldOfType(t, want reflect.Type) []int {
	for i := range t.NumField() {
		if t.Field(i).Type == want {
			return []int{i}
		}
	}
	return nil
}

// bridged reports whether the channel's resolver is one of ours. Should a
// future gRPC keep the builder elsewhere the answer is yes, which is right for
// every channel of ours and leaves others without a configuration to wait for.
func bridged(cc *grpc.ClientConn) bool {
	if builderField == nil {
		return true
	}
	b := reflect.ValueOf(cc).Elem().FieldByIndex(builderField)
	return !b.IsNil() && b.Elem().Type().Implements(bridgedType)
}

// maxVisits bounds the walk; gRPC's own wrappers need four.
const maxVisits = 64

// clientConnBehind walks, reading only, from the resolver.ClientConn that a
// resolver was given to the first *grpc.ClientConn it can reach, or returns
// nil. gRPC gives its own wrapper or, under HTTPS_PROXY, a wrapper of that;
// an application may have put another around it.
func clientConnBehind(rcc resolver.ClientConn) *grpc.ClientConn {
	queue := []reflect.Value{reflect.ValueOf(rcc)}
	for visits := 0; len(queue) > 0 && visits < maxVisits; visits++ {
		v := queue[0]
		queue = queue[1:]
		for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
			if v.Type() == clientConnPointerType && !v.IsNil() {
				return (*grpc.ClientConn)(v.UnsafePointer())
			}
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			continue
		}
		near, far := fieldsToVisit(v)
		queue = append(near, append(queue, far...)...)
	}
	return nil
}

// fieldsToVisit returns the fields of v that can lead on: those that are
// known to lead to a channel, and all others.
func fieldsToVisit(v reflect.Value) (near, far []reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case f.Type() == clientConnPointerType, f.Type() == resolverClientConnType:
			near = append(near, f)
		case f.Kind() == reflect.Interface, f.Kind() == reflect.Pointer && f.Type().Elem().Kind() == reflect.Struct:
			far = append(far, f)
		}
	}
	return near, far
}
