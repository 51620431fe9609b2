package grpcbridge

import (
	"reflect"

	estats "google.golang.org/grpc/experimental/stats"
)

var recordersType = reflect.TypeFor[[]estats.MetricsRecorder]()

// Records reports whether a channel's recorder may record anything. gRPC gives each channel a
// list of its stats plugins that record metrics; Records is false for nil and for an empty list.
// If a future gRPC has no such list, Records is true, so that nothing but time is lost.
func Records(recorder estats.MetricsRecorder) bool {
	if recorder == nil {
		return false
	}
	v := reflect.Indirect(reflect.ValueOf(recorder))
	if v.Kind() != reflect.Struct {
		return true
	}
	field := fieldOfType(v.Type(), recordersType)
	return field == nil || v.FieldByIndex(field).Len() > 0
}
