"""A front end of Alpenglow for networks of Caffe."""
