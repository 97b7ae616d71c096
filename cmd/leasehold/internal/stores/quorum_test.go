package stores_test

import "testing"

func TestOpen_QuorumURLs(t *testing.T) {
	opens(t,
		"quorum+redis://a,b,c", "quorum+rediss://u:p@a:1,b:2,c:3/0?server_name=x",
		"quorum+redis://a,b,c?fencing=false&guard=false&max_skew=2s&timeout=500ms",
		"quorum://?node=redis://a&node=postgres://u:p@b/db&node=rediss%3A%2F%2Fc%2F0%3Fprefix%3Dx%26timeout%3D1s&max-ttl=1m&timeout=500ms",
		"quorum:?node=redis://a&node=http://b&node=unix:///c",
		"quorum+mysql://u:p@a,b,c/db?table=locks&max-ttl=1m", "quorum+nats://a,b:4222,c/locks", "quorum+tls://a,b,c",
		"quorum://?node=mariadb://u:p@a/db&node=nats://b&node=redis://c",
	)
	refuses(t, map[string]string{
		"quorum+redis://":                                                 "name all of them",
		"quorum+redis://a,,c":                                             "name all of them",
		"quorum+redis://u:secret@a,b:x,c":                                 "65535",
		"quorum+redis://a,b,a":                                            "are both",
		"quorum+redis://a,b,c?max-ttl=soon":                               "500ms",
		"quorum+redis://a,b,c?max-ttl=1m&max-ttl=2m":                      "twice",
		"quorum+redis://a,b,c?max-skew=1s&max_skew=2s":                    "twice",
		"quorum+redis://a,b,c?timeout=1s&timeout=2s":                      "twice",
		"quorum+redis://a,b,c?max-ttl=1ns":                                "10ms",
		"quorum+redis://a,b,c?guard=perhaps":                              "true or false",
		"quorum+redis://a,b,c?timeout=5":                                  "500ms",
		"quorum+redis://a,b,c?nonsense=1":                                 "nonsense",
		"quorum+redis+cluster://a,b,c":                                    "unknown kind",
		"quorum://":                                                       "want the form",
		"quorum://h1?node=redis://a":                                      "want the form",
		"quorum://?node=redis://a&node=b":                                 "no kind",
		"quorum://?node=redis://u:secret@a&node=file:///x":                "no kind",
		"quorum://?node=redis://a&node=s3://bucket":                       "no kind",
		"quorum://?node=redis://a&node=quorum%3A%2F%2F%3Fnode%3Dredis://": "no kind",
		"quorum://?node=redis://:secret@a&node=redis://:secret@a":         "are both",
		"quorum://?node=redis://a&node=redis://b&prefix=x":                "percent-encoded",
		"quorum://?node=redis://a&node=postgres://u:secret@b:x/db":        "percent-encode",
		"quorum+redis://:secret@a,b,c?prefix=%":                           "name=value",
	})
}
