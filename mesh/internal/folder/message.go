package folder

import (
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// readMessage reads a message in protobuf's JSON form, and reports whether it is valid.
func readMessage(v document.Value, m proto.Message) bool {
	if !v.IsObject() {
		v.Object() // reports that an object is expected
		return false
	}
	text, at := v.JSON()
	err := protojson.Unmarshal(text, m)
	if err == nil {
		return true
	}
	// protojson randomizes its spaces.
	parts := protojsonError.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\u00a0", " "))
	line, _ := strconv.Atoi(parts[1])
	problem, suggestion := parts[2], ""
	if typeURL, ok := strings.CutPrefix(problem, "unable to resolve "); ok {
		problem = "unknown type " + strings.TrimSuffix(typeURL, `: "not found"`)
		suggestion = "check its spelling; known are the types of Envoy's API that gRPC clients use"
	}
	at(line).Fault(suggestion, "%s", problem)
	return false
}

// protojsonError matches errors of protojson.
var protojsonError = regexp.MustCompile(`(?s)^(?:proto: )?(?:syntax error )?(?:\(line (\d+):\d+\): )?(.*)$`)
