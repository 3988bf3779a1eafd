date +%s > /tmp/t0; mkdir -p /tmp/carry && cp -r .carry3/* /tmp/carry/ && ls /tmp/carry
