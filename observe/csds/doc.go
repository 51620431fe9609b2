// Package csds is the Client Status Discovery Service (gRFC A40): it reports, over
// gRPC, the resources of the xDS clients of this process, their versions and their
// errors. grpcdebug reads it.
//
// It is not a control plane's CSDS, which reports on other nodes, and it changes
// nothing, but that RPCs are counted from the first request on (docs/tasks/statuspage.md). It
// holds no state: each answer is made from xdsclient.Clients and
// XDSClient.Dump when the request arrives. Every client of the gRPC server that it is
// registered on can read it, and resources can be confidential, so that should be a
// server for administrators.
//
// # The answer
//
// There is one ClientConfig per client, so one for all channels with the same
// bootstrap. Its generic_xds_configs list the watched resources in the order of
// their type URLs and names; the deprecated xds_config stays empty.
//
//	node            the Node that the client sends to its management servers
//	client_scope    the targets of the channels that use the client
//	version_info,   of the last response that carried the resource and in which
//	last_updated    it was valid, also if its bytes were those of the one before
//	xds_config      the resource in use, as the server sent it
//	client_status   REQUESTED, DOES_NOT_EXIST, ACKED, NACKED, RECEIVED_ERROR or
//	                TIMEOUT (gRFC A88)
//	error_state     the error, its time, and the version of the response with
//	                it; failed_configuration is not kept
//
// The last entry, with the name [StateName], is no resource: it has the live state of the
// client and its channels as a google.protobuf.Struct, which every tool can print: a verdict,
// problems, clusters with their connections, ejections and outcomes of RPCs, and servers. It
// is there also if the request excludes contents, and bounded in size;
// docs/reference/csds.md lists its keys.
//
// The answer has no field for the fields that the client ignores: see
// xdsclient.ResourceDump.Ignored, and the command "dynxds status".
//
// A resource can be in use and have an error: unless the server has the feature
// fail_on_data_errors, a resource that is NACKED, for example, is still in use in its
// last good version (A88).
package csds
