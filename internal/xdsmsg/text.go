package xdsmsg

import (
	"fmt"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// With sets the fields of a message that the text, in the text format of protobuf, has, and adds to those that
// are repeated:
//
//	xdsmsg.With(xdsmsg.PrefixRoute("", "blue"), `route { retry_policy { retry_on: "unavailable" } }`)
//
// The arguments are for verbs of package fmt in the text. It panics if the text does not parse.
func With[M proto.Message](message M, fields string, args ...any) M {
	text := fmt.Sprintf(fields, args...)
	more := message.ProtoReflect().New().Interface()
	if err := prototext.Unmarshal([]byte(text), more); err != nil {
		panic(fmt.Sprintf("xdsmsg: %T { %s }: %v", message, text, err))
	}
	proto.Merge(message, more)
	return message
}
